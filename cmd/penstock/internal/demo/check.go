package demo

import "fmt"

// Departure is a flight that the airline has committed: the ground truth.
type Departure struct {
	Flight  int64
	Tailnum string
	// Turn counts the aircraft's flights up to this one, under the aircraft's row lock; 0 without a
	// tail number.
	Turn int64
}

// Arrival is a message as the consumer read it from the broker.
type Arrival struct {
	Departure
	// Key is the key that came with the message, separate from the payload.
	Key string
}

// Checked is the result of comparing the arrivals with the committed flights.
type Checked struct {
	// Published counts committed departures, Delivered those of them that
	// arrived at least once, Lost the others.
	Published, Delivered, Lost int
	// Phantom counts arrivals that were not committed: rolled back, altered or made up.
	Phantom int
	// Duplicates counts arrivals after the first of their flight. Delivery is at least once, so
	// they are not a failure.
	Duplicates int
	// OutOfOrder counts first deliveries that came after a later flight of the
	// same aircraft.
	OutOfOrder int
	// Examples describes the first few findings.
	Examples []string
}

// OK reports whether the delivery kept its promises.
func (c *Checked) OK() bool { return c.Lost == 0 && c.Phantom == 0 && c.OutOfOrder == 0 }

const maxExamples = 5

func (c *Checked) example(format string, args ...any) {
	if len(c.Examples) < maxExamples {
		c.Examples = append(c.Examples, fmt.Sprintf(format, args...))
	}
}

// Check compares arrivals, in the order in which the consumer read them, with
// the committed ones.
func Check(committed []Departure, arrivals []Arrival) Checked {
	c := Checked{Published: len(committed)}
	truth := make(map[int64]Departure, len(committed))
	for _, d := range committed {
		truth[d.Flight] = d
	}
	seen := make(map[int64]bool, len(committed))
	latest := make(map[string]int64) // by aircraft: the latest turn delivered
	for _, a := range arrivals {
		d, ok := truth[a.Flight]
		switch {
		case !ok:
			c.Phantom++
			c.example("phantom: flight %d of aircraft %q arrived but was never committed", a.Flight, a.Tailnum)
			continue
		case a.Departure != d || a.Key != d.Tailnum:
			c.Phantom++
			c.example("phantom: flight %d arrived as %+v with key %q, committed was %+v", a.Flight, a.Departure, a.Key, d)
			continue
		case seen[a.Flight]:
			c.Duplicates++
			continue
		}
		seen[a.Flight] = true
		if d.Tailnum == "" {
			continue // unkeyed: no order was promised
		}
		if d.Turn < latest[d.Tailnum] {
			c.OutOfOrder++
			c.example("out of order: flight %d, turn %d of aircraft %s, arrived after turn %d", d.Flight, d.Turn, d.Tailnum, latest[d.Tailnum])
			continue
		}
		latest[d.Tailnum] = d.Turn
	}
	c.Delivered = len(seen)
	c.Lost = c.Published - c.Delivered
	if c.Lost > 0 {
		for _, d := range committed {
			if !seen[d.Flight] {
				c.example("lost: flight %d, turn %d of aircraft %q, was committed and never arrived", d.Flight, d.Turn, d.Tailnum)
			}
		}
	}
	return c
}
