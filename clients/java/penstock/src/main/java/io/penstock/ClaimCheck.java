package io.penstock;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Opens messages whose payload is stored outside of them (docs/guides/relaying.md#large-payloads). */
public final class ClaimCheck {
    /** The header with the reference to a stored payload. */
    public static final String HEADER = "penstock-claim-check";

    private static final Pattern URL = Pattern.compile("\"url\":\"([^\"]*)\"");
    private static final Pattern NAME = Pattern.compile("/([0-9a-f]{64})$");
    private static final Pattern BYTES = Pattern.compile("\"bytes\":([0-9]{1,9})[,}]");
    private static final Pattern SHA256 = Pattern.compile("\"sha256\":\"([0-9a-f]{64})\"");

    private ClaimCheck() {}

    /** Reads the object of a name, 64 hexadecimal digits, from the bucket or directory that the consumer trusts. */
    @FunctionalInterface
    public interface Fetch {
        byte[] fetch(String name) throws IOException;
    }

    /**
     * Returns the payload as it was published. The reference is the message's header; if it is null or empty that is the payload itself. Throws a
     * PenstockException if the stored payload has another size or SHA-256 than the published one.
     */
    public static byte[] open(String reference, byte[] payload, Fetch fetch) throws IOException {
        if (reference == null || reference.isEmpty()) {
            return payload;
        }
        String url = part(URL, reference);
        byte[] stored = fetch.fetch(part(NAME, url));
        if (stored.length != Integer.parseInt(part(BYTES, reference)) || !sha256(stored).equals(part(SHA256, reference))) {
            throw new PenstockException(url + ": the stored payload is not the one that was published: it has " + stored.length + " bytes, of " + part(BYTES, reference), null);
        }
        return stored;
    }

    /** A fetch that reads from the relay's directory, which may have another path here. */
    public static Fetch directory(Path path) {
        return name -> Files.readAllBytes(path.resolve(name));
    }

    private static String part(Pattern pattern, String text) {
        Matcher found = pattern.matcher(text);
        if (!found.find()) {
            throw new PenstockException("the header " + HEADER + " cannot be read, or its URL does not end in a name that Penstock gives", null);
        }
        return found.group(1);
    }

    private static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e); // every Java has it
        }
    }
}
