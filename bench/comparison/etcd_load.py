"""A small load on etcd through its gRPC API, for its CPU time per operation; needs grpcio.

    etcd_load.py get|put PORT PID CPU,... SECONDS

Requests are encoded by hand: RangeRequest and PutRequest have the key in field 1, PutRequest the value in field 2. Several
channels with many requests in flight; a Python client is the bottleneck all the same, and says nothing of throughput.
Prints one line of JSON.
"""

import json
import os
import random
import sys
import threading
import time

import grpc

CHANNELS, IN_FLIGHT = 8, 32
KEYS, VALUE = 1000, b"v" * 100
WARM_S, READY_S = 1.0, 30


def field(number, data):
    """A protobuf field of bytes shorter than 128."""
    return bytes([number << 3 | 2, len(data)]) + data


def put(key):
    return field(1, key) + field(2, VALUE)


def read(key):
    return field(1, key)


def key(number):
    return b"/corral-bench/k/%08d" % number


def cpu_s(pid):
    """Seconds of CPU time of a process, as clock_getcpuclockid names its clock."""
    return time.clock_gettime(~pid << 3 | 2)


class Channel:
    """One connection that keeps a number of requests in flight; its counter belongs to its callbacks' lock."""

    def __init__(self, port, op):
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        grpc.channel_ready_future(self.channel).result(READY_S)
        name, self.encode = ("Range", read) if op == "get" else ("Put", put)
        self.call = self.channel.unary_unary(f"/etcdserverpb.KV/{name}")
        self.done, self.failure, self.lock, self.stopped = 0, None, threading.Lock(), False
        self.random = random.Random(port)

    def prepare(self):
        call = self.channel.unary_unary("/etcdserverpb.KV/Put")
        for number in range(KEYS):
            call(put(key(number)))

    def start(self):
        for _ in range(IN_FLIGHT):
            self.next()

    def next(self):
        future = self.call.future(self.encode(key(self.random.randrange(KEYS))))
        future.add_done_callback(self.answered)

    def answered(self, future):
        try:
            if not future.result():
                self.failure = "an empty answer"
        except grpc.RpcError as error:
            self.failure = str(error)
        with self.lock:
            self.done += 1
        if not self.stopped and not self.failure:
            self.next()


def main():
    op, port, pid, cpus, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    channels = [Channel(port, op) for _ in range(CHANNELS)]
    channels[0].prepare()
    for channel in channels:
        channel.start()
    time.sleep(WARM_S)
    done, used, begun = sum(channel.done for channel in channels), cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    done, used = sum(channel.done for channel in channels) - done, cpu_s(pid) - used
    took = time.monotonic() - begun
    for channel in channels:
        channel.stopped = True
    if failures := [channel.failure for channel in channels if channel.failure]:
        sys.exit(failures[0])
    print(json.dumps({"cpu": used / max(1, done) * 1e6, "throughput": done / took}))


if __name__ == "__main__":
    main()
