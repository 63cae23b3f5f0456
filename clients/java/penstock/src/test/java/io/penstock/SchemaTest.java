package io.penstock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CompletableFuture;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class SchemaTest {
    @Test
    void theSchemaIsTheProgramsAlsoWhenTwoMakeIt() throws Exception {
        try (Database database = Database.empty()) {
            Penstock penstock = Penstock.on(database.dataSource);
            CompletableFuture.allOf(CompletableFuture.runAsync(penstock::migrate), CompletableFuture.runAsync(penstock::migrate)).get();
            database.penstock("migrate", "--check");
            long made = penstock.check();

            database.execute("update penstock._functions set hash = 'of another version'", "drop function penstock.queue_status(text)");
            penstock.migrate();
            database.penstock("migrate", "--check");

            database.execute("drop function penstock.queue_status(text)");
            penstock.migrate(); // the functions are those of this version: the program's --check finds what somebody dropped
            assertThrows(AssertionError.class, () -> database.penstock("migrate", "--check"));

            database.execute("update penstock._functions set hash = 'of a newer version'", "insert into penstock._migration (version_id, is_applied) values (" + (made + 1) + ", true)");
            penstock.migrate();
            assertEquals("of a newer version", database.value("select hash from penstock._functions"));

            assertThrows(SchemaException.class, () -> penstock.schema("other").migrate());
        }
    }

    @Test
    void itLeadsOnFromEachVersionAsTheProgramDoes() throws Exception {
        try (Database database = Database.empty()) {
            String all = database.penstock("migrate", "--sql");
            Schema schema = new Schema();
            assertEquals(all, schema.from(0));
            var versions = Pattern.compile("-- version (\\d+) of the schema").matcher(all).results().map(m -> m.group(1)).toList();
            assertTrue(versions.size() > 0);
            for (String version : versions) {
                assertEquals(statement(database.penstock("migrate", "--sql", "--from", version)), statement(schema.from(Long.parseLong(version))));
            }
            assertThrows(SchemaException.class, () -> schema.from(7));
        }
    }

    /** Without the comments before it, which name the versions. */
    private static String statement(String script) {
        return script.substring(script.indexOf("\ndo "));
    }
}
