package admin

import (
	"time"
)

// VacuumPin is what keeps vacuum from removing dead rows because it may still see them: the
// oldest of its kind. Penstock's own rings do not mind, other tables of the database do.
type VacuumPin struct {
	Kind PinKind `json:"kind"`
	// Who it is: a session's process id and application, or a name.
	Who string `json:"who"`
	// Age is for how long; 0 where the server does not know.
	Age time.Duration `json:"age_ns"`
	// Transactions counts those begun since its snapshot.
	Transactions int64 `json:"transactions"`
}

// PinKind is what a VacuumPin is.
type PinKind string

const (
	PinnedBySession  PinKind = "session"
	PinnedByPrepared PinKind = "prepared_transaction"
	PinnedBySlot     PinKind = "replication_slot"
	PinnedByStandby  PinKind = "standby"
)
