"""Share groups at work: share partitions at their leader, their readers, and the states of both."""
