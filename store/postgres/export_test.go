package postgres

import (
	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
)

// For tests of the statements' plans and of the decoder.
const Settings = settings

var Statement = statement

func DecodeRow(ids messageid.Outbox, row [][]byte) (penstock.Message, error) {
	d := decoder{ids: ids}
	var m penstock.Message
	err := d.decode(&m, row)
	return m, err
}

// SetMaxKeys changes how many parked keys a source keeps in memory.
func SetMaxKeys(n int) (undo func()) {
	was := maxKeys
	maxKeys = n
	return func() { maxKeys = was }
}

// LoseSession cuts a source's connections.
func LoseSession(src driver.Source) { src.(*Source).sess.kill() }

// MoveReader and MoveWriter make a source believe that its connections led to another server
// process, as a pooler would make them.
func MoveReader(src driver.Source) { src.(*Source).sess.reader.pid++ }

func MoveWriter(src driver.Source) { src.(*Source).sess.writer.pid++ }

// ClaimGroups is the statement of AckClaimGroups.
func ClaimGroups(q *Queue) string { return q.claimGroups }

// GrantHint is the next step of an error about a missing right.
func GrantHint(err error) string { return grantHint(err) }
