// Package queuetest is the suite that the queues of every store pass: it turns
// the promises of driver.Queue and driver.QueueStore into tests, and knows
// of no database. It is used like internal/test/storetest:
//
//	func TestQueue(t *testing.T) {
//		queuetest.Run(t, queuetest.Harness{
//			Open: func(t testing.TB) queuetest.Instance {
//				url := newDatabase(t) // migrated, dropped by t.Cleanup
//				…
//				return queuetest.Instance{Store: s, Begin: …, Another: …, Pin: …, Backdate: …}
//			},
//			Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true},
//		})
//	}
//
// store/sqlite/queue_suite_test.go is one.
//
// Differences between databases are declared in [Features]; a test asks for a
// feature and never for a driver. Open the store with storage that rotates
// after a few hundred KiB, so that a few megabytes go round.
//
// The random tests draw from one seed, which they print; PENSTOCK_SEED repeats
// it. PENSTOCK_ROUNDS=1 makes them as long as in make soak. No test sleeps for a
// fixed time and hopes: each waits for a condition, and a deadline that is far
// away only ends a test that has already failed.
package queuetest
