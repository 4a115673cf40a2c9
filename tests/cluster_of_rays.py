"""Several nodes of Ray on this machine, as processes: prints their address, and does what is said on standard input (`kill NAME`, `add NAME`)."""

import json
import sys

from ray.cluster_utils import Cluster


def main():
    # No cores at the head, so no server either.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_name": "head", "object_store_memory": 80 << 20})
    nodes = {}

    def add(name):
        nodes[name] = cluster.add_node(num_cpus=1, node_name=name, object_store_memory=80 << 20)

    for name in sys.argv[1:]:
        add(name)
    print(json.dumps({"address": cluster.address, "session": cluster.head_node.get_session_dir_path()}), flush=True)
    for line in sys.stdin:
        what, name = line.split()
        if what == "kill":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        else:
            add(name)
        print(json.dumps({"done": line.strip()}), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
