package io.penstock;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ClaimCheckTest {
    private static final String REFERENCE = vector("reference");
    private static final byte[] PAYLOAD = vector("payload").getBytes(UTF_8);
    private static final String NAME = REFERENCE.replaceFirst(".*/([0-9a-f]{64})\".*", "$1");
    private static final byte[] BODY = {};

    private static String vector(String field) {
        try {
            var found = Pattern.compile("\"" + field + "\": \"(.*)\",?\n").matcher(Files.readString(Path.of("../../conformance/claim_check.json")));
            found.find();
            return found.group(1).replace("\\\"", "\"").replace("\\\\", "\\");
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    private static byte[] never(String name) {
        throw new AssertionError(name);
    }

    @Test
    void opens() throws IOException {
        List<String> names = new ArrayList<>();
        assertArrayEquals(PAYLOAD, ClaimCheck.open(REFERENCE, BODY, name -> {
            names.add(name);
            return PAYLOAD;
        }));
        assertEquals(List.of(NAME), names);
        assertSame(BODY, ClaimCheck.open(null, BODY, ClaimCheckTest::never));
        assertSame(BODY, ClaimCheck.open("", BODY, ClaimCheckTest::never));
    }

    @Test
    void anotherPayloadIsAnError() {
        byte[] changed = PAYLOAD.clone();
        changed[0]++;
        for (byte[] altered : List.of(new byte[0], new byte[PAYLOAD.length], changed, (vector("payload") + "x").getBytes(UTF_8))) {
            var said = assertThrows(PenstockException.class, () -> ClaimCheck.open(REFERENCE, BODY, name -> altered));
            assertEquals(true, said.getMessage().contains("not the one that was published"), said.getMessage());
        }
    }

    @Test
    void onlyNamesThatTheRelayGivesAreFetched() {
        for (String reference : List.of("{", "{}", REFERENCE.replace(NAME, "../../etc/passwd"), REFERENCE.replace(NAME, NAME.toUpperCase()), REFERENCE.replace(NAME, NAME + "/"))) {
            assertThrows(PenstockException.class, () -> ClaimCheck.open(reference, BODY, ClaimCheckTest::never), reference);
        }
    }

    @Test
    void files(@TempDir Path folder) throws IOException {
        assertThrows(NoSuchFileException.class, () -> ClaimCheck.open(REFERENCE, BODY, ClaimCheck.directory(folder)));
        Files.write(folder.resolve(NAME), PAYLOAD);
        assertArrayEquals(PAYLOAD, ClaimCheck.open(REFERENCE, BODY, ClaimCheck.directory(folder)));
    }
}
