package io.penstock;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Which group the next claim is from. With several groups it is a deficit round robin over those that have jobs: in each round a group gets
 * as many as its weight says, in one claim or in several.
 */
final class Turns {
    private static final int GROUPS_AT_ONCE = 16; // how many groups one search asks for, and so the most claims between two

    private record Turn(String group, int left) {}

    final List<String> groups; // none: all
    private final Deque<Turn> ready = new ArrayDeque<>(); // those that have not had their turn, and how many jobs each may still get
    private String last; // the group that has its turn
    private int unit = 1; // jobs for a weight of 1 in this round: 1, or more if all weigh the same
    private long looked; // how long the last search took
    private boolean brought; // whether there were jobs since then
    private boolean more; // whether there may be others

    Turns(List<String> groups) {
        this.groups = groups;
        last = groups.size() == 1 ? groups.get(0) : "";
    }

    String group() {
        return last;
    }

    long looked() {
        return looked;
    }

    /** Chooses the group, and returns how many of n jobs to claim from it: 0 if no group has jobs. */
    int next(Line line, int n) {
        if (groups.size() == 1) {
            return n;
        }
        if (ready.isEmpty()) {
            long start = System.nanoTime();
            List<String> found = line.call(q -> q.readyGroups(groups.isEmpty() ? null : groups, last, GROUPS_AT_ONCE));
            Map<String, Integer> weights = new LinkedHashMap<>();
            found.forEach(group -> weights.merge(group, 1, Integer::sum));
            int groups = weights.size();
            unit = groups > 0 && groups == found.size() ? (n + groups - 1) / groups : 1; // small rounds: jobs claimed ahead would be out of proportion
            weights.forEach((group, weight) -> ready.add(new Turn(group, weight * unit)));
            looked = System.nanoTime() - start;
            brought = false;
            more = groups == GROUPS_AT_ONCE;
        }
        if (ready.isEmpty()) {
            return 0;
        }
        last = ready.element().group;
        return Math.min(n, ready.element().left);
    }

    /** Notes how many jobs a claim of a share has brought, and returns whether another claim is worthwhile at once. */
    boolean took(int jobs, int share) {
        if (groups.size() == 1) {
            return jobs == share;
        }
        brought |= jobs > 0;
        more |= jobs == share;
        Turn turn = ready.poll();
        if (turn != null && jobs > 0 && turn.left > jobs && (jobs == share || unit == 1)) { // a claim passes over jobs that others are claiming, and leaves more
            ready.addFirst(new Turn(turn.group, turn.left - jobs));
        }
        return !ready.isEmpty() || more && brought;
    }
}
