# /// script
# dependencies = ["networkx==3.6.1"]
# ///
# Paths, flows and groups in graphs; graphs as files.
import io

import networkx as nx


def work() -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 3), ("b", "c", 4), ("a", "c", 9), ("c", "d", 1)])
    assert nx.dijkstra_path(graph, "a", "d") == ["a", "b", "c", "d"]
    value, _ = nx.maximum_flow(graph, "a", "c", capacity="weight")
    assert value == 12
    assert list(nx.topological_sort(graph)) == ["a", "b", "c", "d"]
    club = nx.karate_club_graph()
    groups = nx.community.greedy_modularity_communities(club)
    assert sum(len(group) for group in groups) == 34 and 2 <= len(groups) <= 5
    ranks = nx.degree_centrality(club)
    assert max(ranks, key=ranks.get) == 33
    kept = io.BytesIO()
    nx.write_graphml(graph, kept)
    kept.seek(0)
    assert set(nx.read_graphml(kept).edges) == set(graph.edges)
