package postgres

import "github.com/penstock/penstock"

// For tests of the statements' plans and of the decoder.
const Settings = settings

var Statement = statement

func DecodeRow(uid string, row [][]byte) (penstock.Message, error) {
	d := decoder{uid: uid}
	var m penstock.Message
	err := d.decode(&m, row)
	return m, err
}

// SetMaxKeys changes how many parked lines a source knows by heart.
func SetMaxKeys(n int) (undo func()) {
	was := maxKeys
	maxKeys = n
	return func() { maxKeys = was }
}

// LoseSession cuts a source's connections.
func LoseSession(src penstock.Source) { src.(*Source).sess.kill() }
