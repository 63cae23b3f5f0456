package storetest

var visibilityCases = []testCase{}
