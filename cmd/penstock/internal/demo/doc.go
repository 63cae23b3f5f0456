// Package demo is Penstock's main job on real data: an airline whose every
// departure is a business transaction that publishes a message.
//
//	transaction per flight:   insert the flight, count it for its aircraft,
//	                          publish flight.departed (key = tail number)
//	relay:                    outbox → sink → broker
//	consumer:                 reads the broker with the broker's own client
//	check:                    arrivals against the airline's commits
//
// The ground truth is the airline's flights table and not the outbox. Its counter is taken under
// the aircraft's row lock. So it is the order in which the transactions of one aircraft could have
// seen each other. The consumer uses none of the sink's code, so an error in the sink shows.
package demo
