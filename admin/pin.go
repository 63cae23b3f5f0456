package admin

import (
	"time"
)

// VacuumPin keeps vacuum from removing dead rows because it may still see them. It is the oldest
// of its kind. It does not affect Penstock's own rings, only the other tables of the database.
type VacuumPin struct {
	Kind PinKind `json:"kind"`
	// Who names it: by a session's process id and application, or by a name.
	Who string `json:"who"`
	// Age is how long it has held its snapshot; 0 if the server does not know.
	Age time.Duration `json:"age_ns"`
	// Transactions counts the transactions that began since its snapshot.
	Transactions int64 `json:"transactions"`
}

// PinKind is the kind of a VacuumPin.
type PinKind string

const (
	PinnedBySession  PinKind = "session"
	PinnedByPrepared PinKind = "prepared_transaction"
	PinnedBySlot     PinKind = "replication_slot"
	PinnedByStandby  PinKind = "standby"
)
