"""What a whole run has seen: every zxid ever given, and the workers' models, compared with what is read back.

It knows operations and what a read found, and no servers.
"""

from oracle.model import Found, Mismatch
from oracle.worker import TOP, Worker


class History:
    """The workers and everything they were told, over all rounds."""

    def __init__(self, client, address, count, timeout_ms, seed):
        client.create(TOP)
        self.workers = [Worker(number, address, timeout_ms, client, seed) for number in range(count)]
        self.zxids, self.adopted, self.lost, self.expired = {}, 0, 0, 0

    @property
    def acknowledged(self):
        return sum(worker.acknowledged for worker in self.workers)

    def roots(self):
        return [root for worker in self.workers for root in (worker.root, worker.ephemeral_root)]

    def record(self, operation):
        """No zxid is given twice. A write that happened unanswered may have left nothing that tells its zxid."""
        if operation.refused or operation.zxid.value is None:
            return
        if self.zxids.setdefault(operation.zxid.value, operation.number) != operation.number:
            raise Mismatch(f"zxid {operation.zxid.value:#x} was given to two writes")

    def judge(self, found, zxid, dead):
        """Compares what was read at a zxid, as {root: {path: (data, Stat)}}, with every worker's model.

        Ephemerals of `dead` sessions may have gone; those of all others must be there.
        """
        if self.zxids and zxid < max(self.zxids):
            raise Mismatch(f"zxid {max(self.zxids):#x} was acknowledged, after the restart the server is at {zxid:#x}")
        for worker in self.workers:
            ephemerals = {path: stat for path, (_, stat) in found[worker.ephemeral_root].items() if path != worker.ephemeral_root}
            adopted, lost = worker.recover(Found(found[worker.root], ephemerals), dead)
            for operation in adopted:
                self.record(operation)
            self.adopted += len(adopted)
            self.lost += lost

    def has_ephemerals_of(self, client, dead):
        """Whether the server still shows ephemerals of the dead sessions."""
        for worker in self.workers:
            shown = {f"{worker.ephemeral_root}/{name}" for name in client.children(worker.ephemeral_root)}
            if any(node.owner in dead for path, node in worker.predicted.ephemerals.items() if path in shown):
                return True
        return False

    def forget_ephemerals(self, dead):
        """The ephemerals of dead sessions are known to be gone."""
        for worker in self.workers:
            self.expired += sum(node.owner in dead for node in worker.model.ephemerals.values())
            worker.forget_ephemerals(dead)

    def summary(self):
        return (
            f"{self.acknowledged} acknowledged writes, 0 lost; of those without an answer {self.adopted} happened and {self.lost} did not; "
            f"{len(self.zxids)} zxids, none twice; {self.expired} ephemerals of sessions left to expire gone"
        )
