package org.apache.kafka.common.test.junit;

import kafka.tools.StorageTool;

/** Runs Kafka's formatting tool for several nodes in one process: each argument has the arguments of a node, one per line. */
public final class Formatting {
    private Formatting() {
    }

    public static void main(String[] nodes) {
        for (String node : nodes) {
            int failed = StorageTool.execute(node.split("\n"), System.out);
            if (failed != 0) {
                System.exit(failed);
            }
        }
    }
}
