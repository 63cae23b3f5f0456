// Package storetest is the suite that every store passes: it turns the promises
// of driver.Store and driver.Source into tests, and knows of no database.
//
// # Using it
//
// A new store adds one test that hands the suite a [Harness]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB) storetest.Instance {
//				url := newDatabase(t) // empty, dropped by t.Cleanup
//				s, err := mydb.Open(t.Context(), url, mydb.Options{})
//				…
//				t.Cleanup(func() { s.Close() })
//				return storetest.Instance{
//					Store:   s,
//					Begin:   func(ctx context.Context) (storetest.Tx, error) { … },
//					Another: func(t testing.TB) driver.Store { … },
//					Pin:     func(t testing.TB) (release func()) { … },
//				}
//			},
//			Features: storetest.Features{ConcurrentWriters: true, Reclaim: true, SmallPieces: true, Snapshots: true},
//		})
//	}
//
// store/sqlite/outbox_suite_test.go is one.
//
// Differences between databases are declared in [Features]; a test asks for a
// feature and never for a driver. A declared feature whose hook is missing
// fails the suite, so that nothing is skipped by accident. If the store rotates
// storage by size, open it with sizes small enough (such as 256 KiB) for a few
// megabytes to go round.
//
// # Part of the suite
//
// A store that is not finished names the groups of run.go that it has, in
// Harness.Groups, or runs one case: go test -run TestStore/Lease/OneHolderAtATime.
//
// # Randomness
//
// The random tests draw from one seed, which they print. Set PENSTOCK_SEED
// to repeat it; goroutines still interleave as they like. PENSTOCK_ROUNDS=1 makes the
// tests as long as in make soak, 20 twenty times as long.
//
// No test sleeps for a fixed time and hopes: each waits for a condition, and a
// deadline that is far away only ends a test that has already failed.
package storetest
