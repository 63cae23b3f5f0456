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
