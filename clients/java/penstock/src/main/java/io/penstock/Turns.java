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

    /**
     * The group whose turn it is, and how many of n jobs to claim from it. With several those behind it, too, if n is enough for more. None if no
     * group has jobs.
     */
    Map<String, Integer> next(Line line, int n, boolean several) {
        if (groups.size() == 1) {
            return Map.of(last, n);
        }
        if (ready.isEmpty()) {
            long start = System.nanoTime();
            List<String> found = line.call(q -> q.readyGroups(groups.isEmpty() ? null : groups, last, GROUPS_AT_ONCE));
            Map<String, Integer> weights = new LinkedHashMap<>();
            found.forEach(group -> weights.merge(group, 1, Integer::sum));
            int groups = weights.size();
            unit = 1; // small rounds: jobs claimed ahead would be out of proportion
            if (groups > 0 && groups == found.size()) {
                unit = several ? Math.max(n / groups, 1) : (n + groups - 1) / groups;
            }
            weights.forEach((group, weight) -> ready.add(new Turn(group, weight * unit)));
            looked = System.nanoTime() - start;
            brought = false;
            more = groups == GROUPS_AT_ONCE;
        }
        Map<String, Integer> shares = new LinkedHashMap<>();
        int room = n;
        for (Turn turn : ready) {
            if (room <= 0 || !shares.isEmpty() && !several) {
                break;
            }
            shares.put(turn.group, Math.min(room, turn.left));
            last = turn.group;
            room -= turn.left;
        }
        return shares;
    }

    /** Notes how many jobs a claim has brought, and returns whether another claim is worthwhile at once. Of several groups, each has had its turn. */
    boolean took(int jobs, Map<String, Integer> shares) {
        int asked = shares.values().stream().mapToInt(n -> n).sum();
        boolean several = shares.size() > 1;
        boolean all = jobs == asked && asked > 0;
        if (groups.size() == 1) {
            return all;
        }
        brought |= jobs > 0;
        more |= several || all;
        for (int n : ready.isEmpty() ? List.<Integer>of() : shares.values()) {
            Turn turn = ready.remove();
            int left = turn.left - (several ? n : jobs);
            if (left > 0 && (several || jobs > 0 && (all || unit == 1))) { // a claim passes over jobs that others are claiming, and leaves more
                ready.addFirst(new Turn(turn.group, left));
            }
        }
        return !ready.isEmpty() || more && brought;
    }
}
