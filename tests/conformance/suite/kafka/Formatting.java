package org.apache.kafka.common.test.junit;

import kafka.tools.StorageTool;

/** Kafka's tool for formatting, for many nodes in one process: an argument holds all of one node's, a line each. */
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
