package mysql

// Unreturned has a queue take its server for MySQL, which has no INSERT … RETURNING.
func Unreturned(q *Queue, is bool) { q.plain.Store(is) }
