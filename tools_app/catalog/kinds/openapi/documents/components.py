"""Names that lead to each other in a circle."""

from collections.abc import Iterable, Mapping


def strongly_connected(edges: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return for each name the one that stands for its strongly connected component (Kosaraju).

    A name comes after those that it leads to, but for those of its own component.
    """
    order: list[str] = []
    seen: set[str] = set()
    for root in edges:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            name, rest = path[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                order.append(name)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(edges[following])))
    back: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for to in targets:
            back[to].append(name)
    groups = dict.fromkeys(order, "")
    for root in reversed(order):
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if not groups[name]:
                groups[name] = root
                waiting += back[name]
    return groups
