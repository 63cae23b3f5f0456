package docstest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// languages are those that the site highlights; text is for pictures and formulas.
var languages = []string{"sh", "sql", "psql", "go", "yaml", "json", "python", "java", "ts", "js", "csharp", "toml", "xml", "properties", "mermaid", "text"}

// A block says its language: without one it is not highlighted, and no test knows how to run it.
func TestFences(t *testing.T) {
	known := map[string]bool{}
	for _, l := range languages {
		known[l] = true
	}
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if !known[b.language] {
				t.Errorf("%s:%d: a block of %q, want one of %s", p.path, b.line, b.language, strings.Join(languages, " "))
			}
		}
	}
}

// runs returns how many blocks of a language on a page tests run, or read with the reader that they are for. It also shows which tests: a folder
// or a file, and the names in it. A semicolon comes before the blocks that they leave out.
var runs = map[string]struct {
	blocks int
	test   string
}{
	"README.md sh":                         {1, "cmd/penstock/systemtest TestReadmeCommands"},
	"README.md sql":                        {1, "cmd/penstock/systemtest TestReadme"},
	"README.md go":                         {1, "cmd/penstock/systemtest TestReadme"},
	"CONTRIBUTING.md sh":                   {2, "internal/test/docstest TestMake; they would run for hours: make prints what it would run"},
	"clients/conformance/README.md json":   {3, "clients/conformance TestReadme"},
	"docs/concepts/retries.md sh":          {1, "cmd/penstock TestRetriesDocs"},
	"docs/guides/adopting.md sh":           {2, "cmd/penstock TestAdoptingDocs"},
	"docs/guides/importing.md json":        {1, "cmd/penstock TestImportingDocs"},
	"docs/guides/importing.md sh":          {1, "cmd/penstock TestImportingDocs"},
	"docs/guides/inbox.md sh":              {2, "cmd/penstock TestInboxDocs"},
	"docs/guides/ingest.md sh":             {2, "cmd/penstock TestIngestDocs"},
	"docs/guides/ingest.md yaml":           {1, "cmd/penstock/internal/config TestExamplesOfPages"},
	"docs/guides/relaying.md sh":           {2, "cmd/penstock TestRelayingDocs"},
	"docs/guides/relaying.md yaml":         {1, "cmd/penstock/internal/config TestExamplesOfPages"},
	"docs/guides/workers.md sh":            {3, "cmd/penstock TestWorkersDocs"},
	"docs/operations/console.md sh":        {1, "cmd/penstock TestConsoleDocs"},
	"docs/reference/console-api.md sh":     {1, "cmd/penstock TestConsoleDocs"},
	"docs/guides/other-databases.md sh":    {2, "cmd/penstock TestEnginesDocs"},
	"docs/reference/formats.md json":       {1, "sink/format TestPage"},
	"docs/reference/formats.md yaml":       {1, "cmd/penstock/internal/config TestExamplesOfPages"},
	"docs/reference/metrics.md sh":         {2, "cmd/penstock TestMetricsDocs"},
	"docs/reference/benchmarks.md sh":      {1, "lab/bench TestBenchDocs; they would run for minutes: their flags are read, and TestMake of internal/test/docstest asks make"},
	"examples/pgbench/README.md sh":        {1, "cmd/penstock/systemtest TestExamplesOfPgbench"},
	"docs/start/getting-started.md sh":     {3, "cmd/penstock/systemtest TestGettingStarted TestGettingStartedWithQueues TestReadmeAdoptsATable"},
	"docs/start/getting-started.md sql":    {3, "cmd/penstock/systemtest TestGettingStartedStatements"},
	"docs/start/getting-started.md go":     {2, "cmd/penstock/systemtest TestGettingStartedInGo TestGettingStartedWorksInGo"},
	"docs/start/install.md sh":             {8, "cmd/penstock/systemtest TestInstall"},
	"docs/start/install.md psql":           {2, "cmd/penstock/systemtest TestInstall"},
	"docs/internals/README.md sql":         {1, "store/postgres TestInternalsDocs"},
	"docs/internals/background.md sql":     {1, "store/postgres TestRestoreDocs"},
	"docs/internals/job.md sql":            {6, "store/postgres TestInternalsDocs"},
	"docs/internals/message.md sql":        {4, "store/postgres TestInternalsDocs"},
	"docs/internals/stuck.md sql":          {1, "store/postgres TestStuckQueueAsThePageSays"},
	"docs/internals/tables.md sql":         {2, "store/postgres TestFlagsAreRepairedAsThePageSays"},
	"docs/migrate/bullmq.md js":            {1, "clients/typescript/test/bullmq/test.sh"},
	"docs/migrate/bullmq.md sql":           {4, "cmd/penstock/systemtest TestMigrationFromBullMQ"},
	"docs/migrate/celery.md sql":           {6, "cmd/penstock/systemtest TestMigrationFromCelery"},
	"docs/migrate/debezium.md sh":          {1, "cmd/penstock/systemtest TestMigrationFromDebezium"},
	"docs/migrate/debezium.md sql":         {3, "cmd/penstock/systemtest TestMigrationFromDebezium"},
	"docs/migrate/debezium.md yaml":        {1, "cmd/penstock/systemtest TestMigrationFromDebezium"},
	"docs/migrate/graphile-worker.md sql":  {7, "cmd/penstock/systemtest TestMigrationOfJobs"},
	"docs/migrate/jobrunr.md sql":          {7, "cmd/penstock/systemtest TestMigrationFromJobRunr"},
	"docs/migrate/outbox.md sh":            {2, "cmd/penstock/systemtest TestMigrationOfAnOutbox"},
	"docs/migrate/outbox.md sql":           {3, "cmd/penstock/systemtest TestMigrationOfAnOutbox"},
	"docs/migrate/pg-boss.md sql":          {7, "cmd/penstock/systemtest TestMigrationOfJobs"},
	"docs/migrate/river.md sql":            {7, "cmd/penstock/systemtest TestMigrationOfJobs"},
	"docs/migrate/sequin.md sh":            {1, "cmd/penstock/systemtest TestMigrationFromSequin"},
	"docs/migrate/sequin.md sql":           {6, "cmd/penstock/systemtest TestMigrationFromSequin"},
	"docs/migrate/sequin.md yaml":          {1, "cmd/penstock/systemtest TestMigrationFromSequin"},
	"docs/guides/buffering.md go":          {2, "cmd/penstock/systemtest TestBufferingInGo TestWriterInGo"},
	"docs/guides/go.md sh":                 {5, "cmd/penstock/systemtest TestGoGuide TestGoGuideOnPostgreSQL"},
	"docs/guides/go.md go":                 {7, "cmd/penstock/systemtest TestGoGuide TestGoGuideOnPostgreSQL"},
	"docs/guides/inbox.md go":              {1, "cmd/penstock/systemtest TestInboxInGo"},
	"docs/guides/inbox.md sql":             {6, "store/postgres TestInboxDocs"},
	"docs/guides/inbox.md python":          {1, "store/postgres TestPythonDocs"},
	"docs/guides/queues.md sql":            {13, "store/postgres TestQueueDocs"},
	"docs/guides/queues.md psql":           {2, "store/postgres TestQueueDocsInPsql"},
	"docs/guides/queues.md go":             {4, "cmd/penstock/systemtest TestBatchesInGo TestQueuesInGo TestKindsInGo TestStepsInGo"},
	"docs/guides/queues.md python":         {3, "store/postgres TestPythonDocs"},
	"docs/guides/queues.md js":             {1, "store/postgres TestNodeDocs"},
	"docs/reference/queues.md sql":         {5, "store/postgres TestQueueDocs"},
	"docs/operations/restore.md sh":        {2, "store/postgres TestRestoreDocsInAShell TestARestoreWithoutTheCompression"},
	"docs/operations/security.md sql":      {1, "cmd/penstock TestRevokeDocs"},
	"docs/operations/restore.md sql":       {2, "store/postgres TestRestoreDocs"},
	"docs/reference/configuration.md yaml": {10, "cmd/penstock/internal/config TestReference"},
	"docs/reference/metrics.md go":         {2, "cmd/penstock/systemtest TestMetricsInGo TestTracesInGo"},
	"clients/python/README.md sh":          {1, "clients/python/tests/test_readme.py test_five_commands"},
	"clients/python/README.md python":      {10, "clients/python/tests/test_readme.py test_python test_fastapi test_types"},
	"docs/guides/django.md sh":             {7, "clients/python/tests/test_guide.py test_guide"},
	"docs/guides/django.md python":         {9, "clients/python/tests/test_guide.py test_guide"},
	"docs/guides/nextjs.md sh":             {3, "clients/typescript/test/nextjs/test.sh"},
	"docs/guides/nextjs.md ts":             {6, "clients/typescript/test/nextjs/test.sh"},
	"clients/typescript/README.md sh":      {1, "clients/typescript/test/package/test.sh"},
	"clients/typescript/README.md ts":      {11, "clients/typescript/test.sh readme.generated.ts; test/nestjs/test.sh runs the module, and metrics.test.ts those of metrics"},
	"docs/guides/spring-boot.md sh":        {6, "clients/java/guide/test.sh"},
	"docs/guides/spring-boot.md xml":       {2, "clients/java/guide/test.sh"},
	"docs/guides/spring-boot.md sql":       {1, "clients/java/guide/test.sh"},
	"docs/guides/spring-boot.md yaml":      {2, "clients/java/guide/test.sh; ModulithTest sets that of Modulith"},
	"docs/guides/spring-boot.md java":      {6, "clients/java/guide/test.sh; ModulithTest has that of Modulith"},
	"clients/java/README.md sh":            {1, "clients/java/test.sh commands.sh"},
	"clients/java/README.md java":          {6, "clients/java/spring-boot-starter/src/test/java/io/penstock/spring/boot/ReadmeTest.java ReadmeTest"},
}

// The site keeps tabs in blocks of code: a program that is copied from it is the page's.
func TestSiteKeepsTabs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`pymdownx\.superfences:\n +preserve_tabs: true`).Match(text) {
		t.Error("mkdocs.yml does not set preserve_tabs of pymdownx.superfences")
	}
}

// The tests that runs names are there.
func TestRunsNamesTests(t *testing.T) {
	for name, r := range runs {
		tests, _, _ := strings.Cut(r.test, ";")
		words := strings.Fields(tests)
		in := filepath.Join(root, words[0])
		files := []string{in}
		if info, err := os.Stat(in); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		} else if info.IsDir() {
			if files, err = filepath.Glob(in + "/*_test.go"); err != nil {
				t.Fatal(err)
			}
		}
		var text strings.Builder
		for _, f := range files {
			read, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(read)
		}
		for _, w := range words[1:] {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`).MatchString(text.String()) {
				t.Errorf("%s: %s has no %s", name, words[0], w)
			}
		}
	}
}

// A test runs each block that could run. Of the examples of --help, TestExamplesAreCommands of cmd/penstock and TestHelp of lab/bench read verbs and flags.
func TestBlocksRun(t *testing.T) {
	count := map[string]int{}
	for _, p := range pages(t) {
		if p.path == "lab/bench/help.md" || strings.HasPrefix(p.path, "docs/reference/commands/") {
			continue
		}
		for _, b := range p.blocks {
			if b.language != "text" && b.language != "mermaid" {
				count[p.path+" "+b.language]++
			}
		}
	}
	for name, r := range runs {
		if count[name] < r.blocks {
			t.Errorf("%s are %d blocks, of which %s runs %d", name, count[name], r.test, r.blocks)
		}
		count[name] -= r.blocks
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		if count[name] > 0 {
			t.Errorf("no test runs %d blocks of %s: run them, and say so in runs", count[name], name)
		}
	}
}

// allowance reads a list of numbers and names.
func allowance(t *testing.T, list string) map[string]int {
	t.Helper()
	allowed := map[string]int{}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		number, name, ok := strings.Cut(strings.TrimSpace(l), " ")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			t.Fatalf("%s: %q", list, l)
		}
		allowed[name] = n
	}
	return allowed
}
