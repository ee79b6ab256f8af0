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


def fields(*values):
    """Protobuf fields 1, 2, ... of bytes shorter than 128."""
    return b"".join(bytes([number << 3 | 2, len(data)]) + data for number, data in enumerate(values, 1))


def request(op, number):
    key = b"/corral-bench/k/%08d" % number
    return fields(key) if op == "get" else fields(key, VALUE)


class Channel:
    """One connection that keeps a number of requests in flight; its counter belongs to its callbacks' lock."""

    def __init__(self, port, op):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
        grpc.channel_ready_future(self.channel).result(READY_S)
        self.op, self.call = op, self.channel.unary_unary(f"/etcdserverpb.KV/{'Range' if op == 'get' else 'Put'}")
        self.done, self.failure, self.lock, self.stopped = 0, None, threading.Lock(), False

    def next(self):
        self.call.future(request(self.op, random.randrange(KEYS))).add_done_callback(self.answered)

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
    prepare = channels[0].channel.unary_unary("/etcdserverpb.KV/Put")
    for number in range(KEYS):
        prepare(request("put", number))
    for channel in channels * IN_FLIGHT:
        channel.next()
    # CPU time of the process, as clock_getcpuclockid names its clock.
    look = lambda: (sum(channel.done for channel in channels), time.clock_gettime(~pid << 3 | 2), time.monotonic())  # noqa: E731
    time.sleep(WARM_S)
    before = look()
    time.sleep(seconds)
    done, used, took = (after - of for after, of in zip(look(), before))
    for channel in channels:
        channel.stopped = True
    if failures := [channel.failure for channel in channels if channel.failure]:
        sys.exit(failures[0])
    print(json.dumps({"cpu": used / max(1, done) * 1e6, "throughput": done / took}))


if __name__ == "__main__":
    main()
