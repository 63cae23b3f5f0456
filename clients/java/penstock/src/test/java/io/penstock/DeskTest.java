package io.penstock;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class DeskTest {
    /** Workers that begin together, and find nothing: their pauses vary by an eighth to both sides. */
    @Test
    void workersThatBeginTogetherDoNotAskTogether() {
        long[] waits = LongStream.range(0, 200).map(i -> {
            Desk desk = new Desk("jobs", new WorkOptions());
            for (int polls = 0; polls < 10; polls++) {
                desk.claimed(List.of(), 10, 0);
            }
            return desk.due().pause();
        }).toArray();
        long most = LongStream.of(waits).max().orElseThrow();
        assertTrue(most > 50_000_000 && most <= 56_250_000, "the longest pause is " + most + " ns, of about 50 ms");
    }
}
