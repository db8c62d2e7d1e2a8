"""Where nodes can be computed together: the patterns behind the fusions that `plan` names."""

from __future__ import annotations

from gguf_runtime.graph.nodes import Add, Attention, Gate, Graph, Linear, Node, RmsNorm, Rotate
from gguf_runtime.graph.rows import Counts

FUSIONS = frozenset({"share", "residual", "quantize", "gate", "store", "post", "outputs"})


class Patterns:
    """Who reads whom in a graph, and what follows from it.

    users  for every node those that read it, in order
    late   nodes that no attention depends on: needed only for tokens that want logits
    """

    def __init__(self, graph: Graph, fuse: frozenset[str]) -> None:
        self.graph = graph
        self.fuse = fuse
        self.users: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            for x in node.inputs:
                self.users[x].append(node)
        self.late: set[Node] = self._late()

    def gate_of(self, node: Linear) -> Gate | None:
        """The gate whose row computes this matrix, if both of its matrices fit into one row."""
        gate = self.only_user(node)
        if "gate" not in self.fuse or not isinstance(gate, Gate):
            return None
        g, u = gate.gate, gate.up
        if not (isinstance(g, Linear) and isinstance(u, Linear) and g is not u and g.x is u.x):
            return None
        alone = self.only_user(g) is gate and self.only_user(u) is gate
        return gate if alone and g.weight.qtype == u.weight.qtype else None

    def is_stored(self, node: Node) -> bool:
        """Whether this head norm or rotation is done by the row that stores into the cache."""
        if "store" not in self.fuse:
            return False
        user = self.only_user(node)
        if isinstance(node, RmsNorm):
            if not isinstance(user, Rotate):
                return False
            attention = self.only_user(user)
            if not isinstance(attention, Attention):
                return False
            q, k = (r.x if isinstance(r, Rotate) else r for r in (attention.q, attention.k))
            both = isinstance(q, RmsNorm) and isinstance(k, RmsNorm) and q.eps == k.eps
            return both and (user is attention.q or user is attention.k)
        return isinstance(user, Attention) and user.v is not node

    def is_post(self, node: RmsNorm) -> bool:
        """Whether this norm of a branch's result is done together with the norm after it."""
        user = self.only_user(node)
        return isinstance(user, Add) and self.post_of(user) is node

    def post_of(self, node: Add) -> RmsNorm | None:
        """The norm in a + norm(y), if the row of the next norm can do it and the sum."""
        if "post" not in self.fuse:
            return None
        post, users = node.b, self.users[node]
        if not isinstance(post, RmsNorm) or self.only_user(post) is not node:
            return None
        following = users[0] if users else None
        if not isinstance(following, RmsNorm) or self.counts(following) != self.counts(node):
            return None
        whole = node.width == post.weight.k == following.weight.k
        return post if whole and self.counts(post) == self.counts(node) else None

    def only_user(self, node: Node) -> Node | None:
        """The one node that reads this one, None where several do."""
        users = self.users[node]
        return users[0] if len(users) == 1 else None

    def _late(self) -> set[Node]:
        """Nodes that no attention depends on: needed only for tokens that want logits."""
        feeds: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if isinstance(node, Attention) or node in feeds:
                feeds.update((node, *node.inputs))
        late = {node for node in self.graph.nodes if node not in feeds}
        if "outputs" not in self.fuse:
            head = self.graph.head
            last = head.x if isinstance(head.x, RmsNorm) and self.only_user(head.x) else head
            late &= {head, last}
        return late

    def counts(self, node: Node) -> Counts:
        """Which tokens a node is computed for."""
        return "outputs" if node in self.late else "tokens"
