"""A Spark application that works when it is told to: each line of its input is a number n, the answer the sum below n.

Its first line of output is its application id. It runs in a process of its own, see spark.py, and knows nothing of masters
that come and go.
"""

import sys

from pyspark import SparkConf, SparkContext


def main():
    conf = SparkConf().setAppName(sys.argv[1]).set("spark.ui.enabled", "false")
    conf.set("spark.executor.memory", "512m").set("spark.cores.max", "1").set("spark.driver.bindAddress", "127.0.0.1")
    context = SparkContext(master=sys.argv[2], conf=conf)
    print("id", context.applicationId, flush=True)
    for line in sys.stdin:
        count = int(line)
        print("sum", context.parallelize(range(count), 4).map(lambda number: number).sum(), flush=True)
    context.stop()


if __name__ == "__main__":
    main()
