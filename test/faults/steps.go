package main

import "github.com/kcp-migrate/kcp-migrate/test/faults/point"

// Role is on which worker an activity runs.
type Role string

// The roles of the workers in a move.
const (
	Origin      Role = "origin"
	Destination Role = "destination"
	// Either worker may take it.
	Either Role = "either"
)

// place is an activity at which a fault can strike.
type place struct {
	activity string
	role     Role
	moments  []point.Moment
	// needs is what a move must be like to come by.
	needs need
}

// need is what a move must be like.
type need string

const (
	nothing need = ""
	// aLift is of a destination whose revision is below the origin's.
	aLift need = "lift"
	// anExport is of a tenant that holds APIExports.
	anExport need = "export"
	// anUndo is of a move that is aborted after the copy.
	anUndo need = "undo"
)

var (
	anyMoment = []point.Moment{point.Before, point.During, point.After}
	// endsOnly is of activities that write nothing.
	endsOnly = []point.Moment{point.Before, point.After}
)

// step is one row of the protocol (workflows/doc.go), with its activities.
type step struct {
	name   string
	places []place
}

var steps = []step{
	{"preflight", []place{
		{"Resolve", Either, endsOnly, nothing},
		{"InspectOrigin", Origin, endsOnly, nothing},
		{"InspectDestination", Destination, endsOnly, nothing},
	}},
	{"claim origin", []place{{"Claim", Origin, anyMoment, nothing}}},
	{"claim destination", []place{{"Claim", Destination, anyMoment, nothing}}},
	{"ready destination", []place{{"LiftRevision", Destination, anyMoment, aLift}}},
	{"fence origin", []place{{"FenceOrigin", Origin, anyMoment, nothing}}},
	{"wake origin", []place{
		{"WakeShard", Origin, anyMoment, nothing},
		{"AwaitInformers", Origin, endsOnly, nothing},
	}},
	{"fence destination", []place{{"FenceDestination", Destination, anyMoment, nothing}}},
	{"copy", []place{{"CopyEntries", Destination, anyMoment, nothing}}},
	{"verify", []place{{"VerifyEntries", Destination, anyMoment, nothing}}},
	{"commit", []place{{"Commit", Destination, anyMoment, nothing}}},
	{"serve", []place{{"AwaitServing", Destination, endsOnly, nothing}}},
	{"clean up origin", []place{
		{"DropOriginLogicalCluster", Origin, anyMoment, nothing},
		{"TouchDestination", Destination, anyMoment, nothing},
		{"DeleteOriginEntries", Origin, anyMoment, nothing},
		{"ReleaseContext", Origin, anyMoment, anExport},
	}},
	{"finalize destination", []place{
		{"AwaitOwner", Either, endsOnly, nothing},
		{"AwaitRoute", Either, endsOnly, nothing},
		{"Release", Origin, anyMoment, nothing},
		{"Release", Destination, anyMoment, nothing},
	}},
	{"undo", []place{
		{"Seal", Destination, anyMoment, anUndo},
		{"RaiseToken", Origin, anyMoment, anUndo},
		{"DropDestinationEntries", Destination, anyMoment, anUndo},
		{"TouchOrigin", Origin, anyMoment, anUndo},
		{"DropDestinationLogicalCluster", Destination, anyMoment, anUndo},
		{"SweepDestination", Destination, anyMoment, anUndo},
		{"LiftFence", Origin, anyMoment, anUndo},
		{"AwaitRoute", Either, endsOnly, anUndo},
		{"Release", Origin, anyMoment, anUndo},
		{"Release", Destination, anyMoment, anUndo},
	}},
}
