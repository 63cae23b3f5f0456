// Package systemtest runs the real penstock binary against real servers: kill
// -9, signals, outages, full disks.
//
// Half a year of flights takes the place of the embedded sample where
// PENSTOCK_FLIGHTS names the file.
package systemtest
