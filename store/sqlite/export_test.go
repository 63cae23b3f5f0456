package sqlite

// WithPragmas sets pragmas on the connection that writes: max_page_count makes
// a full disk.
func WithPragmas(o Options, pragmas ...string) Options {
	o.pragmas = append(o.pragmas, pragmas...)
	return o
}

// What the fuzz test compares.
var (
	DecodeHeaders = decodeHeaders
	DecodePlain   = decodePlain
	DecodeJSON    = decodeJSON
	EncodeHeaders = encodeHeaders
)
