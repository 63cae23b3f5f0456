package io.penstock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class DeskTest {
    /** Workers that begin together, and find nothing: their pauses vary by an eighth to both sides. */
    @Test
    void workersThatBeginTogetherDoNotAskTogether() {
        long[] waits = LongStream.range(0, 200).map(i -> {
            Desk desk = new Desk("jobs", new WorkOptions());
            for (int polls = 0; polls < 10; polls++) {
                desk.claimed(new Queue.Claimed(List.of(), List.of(), false), Map.of("", 10), 0);
            }
            return desk.due().pause();
        }).toArray();
        long most = LongStream.of(waits).max().orElseThrow();
        assertTrue(most > 50_000_000 && most <= 56_250_000, "the longest pause is " + most + " ns, of about 50 ms");
    }

    private static Desk.Task task(Desk desk, long lease, String group) {
        Job job = new Job("jobs", new Object[] {lease, null, group, 0, 1, null, null, new byte[0], lease, null});
        desk.claimed(new Queue.Claimed(List.of(job), List.of(), false), Map.of(group, 1), System.nanoTime() + Worker.nanos(Duration.ofHours(1)));
        return desk.kept().stream().filter(t -> t.job.lease() == lease).findFirst().orElseThrow();
    }

    private static void claims(Desk desk, Job... jobs) {
        desk.claimed(new Queue.Claimed(List.of(jobs), List.of(), false), Map.of("", 10), System.nanoTime() + Worker.nanos(Duration.ofHours(1)));
    }

    private static Job ofKey(long lease, String key) {
        return new Job("jobs", new Object[] {lease, key, "", 0, 1, null, null, new byte[0], lease, null});
    }

    /** Whether it claims at once when two jobs that it has claimed together have ended, and before, when the first has. Meanwhile it has found nothing. */
    private static List<Desk.Action> afterEnds(String key, Outcome how) {
        while (true) {
            Desk desk = new Desk("jobs", new WorkOptions());
            claims(desk, ofKey(1, null), ofKey(2, key));
            Desk.Task first = desk.begin();
            Desk.Task second = desk.begin();
            for (int polls = 0; polls < 10; polls++) {
                claims(desk);
            }
            long start = System.nanoTime();
            desk.ended(second, how, start);
            Desk.Action one = desk.due().action();
            desk.ended(first, null, start);
            Desk.Action all = desk.due().action();
            if (System.nanoTime() - start < 10_000_000) { // else the pause may be over, or an ack due
                return List.of(one, all);
            }
        }
    }

    /** The next job of a key is ready once the one before it has ended. So the worker does not wait for its next poll. */
    @Test
    void theNextJobsOfKeysAreClaimedOnceAllHaveEnded() {
        assertEquals(List.of(Desk.Action.WAIT, Desk.Action.CLAIM), afterEnds("k", null));
        assertEquals(List.of(Desk.Action.WAIT, Desk.Action.CLAIM), afterEnds("k", Outcome.settled()));
        assertEquals(List.of(Desk.Action.WAIT, Desk.Action.WAIT), afterEnds(null, null));
    }

    /** A worker that has just left a job to others claims nothing meanwhile, also with keys. */
    @Test
    void aWorkerThatHasNoHandlerForAKeyYields() {
        Desk.Action next = null;
        for (long start = 0; next == null || System.nanoTime() - start > 10_000_000;) { // else it may have yielded for long enough
            Desk desk = new Desk("jobs", new WorkOptions());
            claims(desk, ofKey(1, "k"), ofKey(2, "l"));
            Desk.Task first = desk.begin();
            Desk.Task second = desk.begin();
            start = System.nanoTime();
            desk.ended(first, Outcome.released(Duration.ZERO), start);
            desk.written(first, WorkOptions.End.RELEASED);
            desk.ended(second, null, start);
            next = desk.due().action();
        }
        assertEquals(Desk.Action.WAIT, next);
    }

    @Test
    void aHeldGroupGivesBackItsJobsAlone() {
        Desk desk = new Desk("jobs", new WorkOptions().allGroups().concurrency(1));
        Desk.Task holds = task(desk, 1, "a");
        Desk.Task ahead = task(desk, 2, "a");
        Desk.Task other = task(desk, 3, "b");
        assertSame(holds, desk.begin());
        assertNull(desk.ended(holds, Outcome.holdGroup(Duration.ofHours(1), null), System.nanoTime()));
        assertEquals(List.of(ahead), desk.written(holds, WorkOptions.End.SNOOZED));
        assertSame(other, desk.begin());
    }

    /** A job that is being given back is counted when that is written, though its lease is lost meanwhile. */
    @Test
    void aJobThatIsGivenBackMayLoseItsLease() {
        List<WorkOptions.End> ends = new ArrayList<>();
        Desk desk = new Desk("jobs", new WorkOptions().onEnd((job, end) -> ends.add(end)));
        Desk.Task task = task(desk, 1, "");
        assertEquals(List.of(task), desk.stop());
        desk.extended(List.of(task), List.of(), 0);
        assertEquals(List.of(), ends);
        desk.finish(task, WorkOptions.End.RELEASED);
        assertEquals(List.of(WorkOptions.End.RELEASED), ends);
    }

    /** A worker that meets many of them would claim far ahead of slow handlers: no handler has run. */
    @Test
    void aJobThatIsPassedOnIsNotThePaceOfHandlers() {
        Desk desk = new Desk("jobs", new WorkOptions().concurrency(1));
        for (long lease = 1; lease <= 50; lease++) {
            Desk.Task passed = task(desk, lease, "");
            assertSame(passed, desk.begin());
            desk.ended(passed, Outcome.released(Duration.ZERO), System.nanoTime());
        }
        assertEquals(1, desk.wanted());
        Desk.Task slow = task(desk, 51, "");
        assertSame(slow, desk.begin());
        desk.ended(slow, null, System.nanoTime() - Worker.nanos(Duration.ofMillis(26)));
        int ahead = desk.wanted();
        Desk.Task passed = task(desk, 52, "");
        assertSame(passed, desk.begin());
        desk.ended(passed, Outcome.released(Duration.ZERO), System.nanoTime());
        assertEquals(ahead, desk.wanted());
    }

    /** Jobs that were claimed ahead of handlers that hang are given back for other workers, and none is claimed ahead. */
    @Test
    void jobsThatHandlersDoNotReachAreGivenBack() {
        Desk desk = new Desk("jobs", new WorkOptions().concurrency(1));
        Desk.Task quick = task(desk, 1, "");
        assertSame(quick, desk.begin());
        desk.ended(quick, null, System.nanoTime());
        Desk.Task hangs = task(desk, 2, "");
        assertSame(hangs, desk.begin());
        assertTrue(desk.wanted() > 0, "none is claimed ahead");
        Desk.Task ahead = task(desk, 3, "");
        assertEquals(List.of(), desk.stuck());
        Desk.Task later = task(desk, 4, "");
        assertEquals(List.of(ahead), desk.stuck());
        assertEquals(List.of(later), desk.stuck());
        assertEquals(0, desk.wanted());
    }
}
