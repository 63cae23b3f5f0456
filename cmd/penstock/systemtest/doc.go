// Package systemtest runs the real penstock binary against real servers: kill
// -9, signals, outages, full disks.
//
// PENSTOCK_FLIGHTS may name a file with half a year of flights, which replaces the embedded
// sample.
package systemtest
