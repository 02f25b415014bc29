// Package workflows decides how one logical cluster moves from the shard it lives on (origin) to another
// (destination), so that at every moment, whatever dies, the tenant is whole and usable on exactly one of the two.
// It does no I/O: package activities acts, on workers that sit beside each shard.
//
// # The protocol
//
//	phase                step                 what is done                                      taken back by
//	Preparing            preflight            all that can be refused is refused                –
//	                     claim origin         the token is written to the origin's etcd         releasing it
//	                     claim destination    and to the destination's                          releasing it
//	                     ready destination    leftovers discarded, bound CRDs installed,        – (harmless)
//	                                          revision lifted above the origin's
//	                     gate                 approval, and the last place for a pause; what    –
//	                                          a wait made stale is found out and readied again
//	                     fence origin         everyone is out, every watch is cut; from here    lifting the fence, waking
//	                                          the tenant is away; the shard is woken beside
//	                                          the copy
//	                     fence destination    its LogicalCluster is written first, inactive     deleting it
//	Migrating            copy                 every other entry, at one revision                deleting them
//	                     verify               both sides digested, differences repaired,        –
//	                                          until they are equal
//	                     commit               one Txn opens the destination's LogicalCluster    nothing: see below
//	OriginCleanup        serve                every API server of the destination answers;      –
//	                                          the tenant is back
//	                     clean up origin      LogicalCluster, then, while kcp's informers can   –
//	                                          see it, every entry that has not changed since
//	                                          it was verified; late writes are carried; the
//	                                          route is held at the destination where the
//	                                          origin does not let go soon
//	DestinationFinalize  finalize destination bound resources, front-proxies and the owner      –
//	                                          Workspace agree; claims are released
//	Completed
//
// # No return
//
// The landing of the commit's Txn is the point of no return, not the answer of its activity. Before it an error, a
// cancellation, an abort, or maxTimeAway takes the move back; after it the move only goes forward, and a step that fails
// for good is tried again until a person has mended the cause. Every undo therefore begins by sealing the destination:
// one Txn that raises the token if the commit has not landed. Where it has, the move goes on as if nothing had happened.
// The rest of the undo locks out late writers at the origin, deletes the destination's entries, turns the route to the
// origin, deletes the destination's LogicalCluster, lifts the fence, wakes the origin and releases the claims. The fence is
// never lifted beside a destination that may be open. The move then ends as Failed, with the cause's type, and with
// the Result, in which all that was taken back is listed, as the failure's details.
//
// # Tokens
//
// Every write compares the claim's token, "<run id>/<n>". The workflow raises n at the origin for each attempt to fence
// it and for the undo, and at the destination for each attempt of a round of verification, for the commit and for the
// seal. An attempt
// that was given up for dead holds an older token and can do no harm, whenever it wakes.
//
// # Recovery
//
// A move whose workflow was terminated or lost leaves its claims, and in them all that it takes to go on. Another workflow
// takes them over, the destination's first, so that nothing of the old one can write any more; then it looks, and enters the
// story above right after the commit where that has landed, and the undo where it has not. See RecoverLogicalCluster.
//
// # Time away
//
// Between the fence and the commit nothing runs in line but the five activities that the protocol names. The time away is
// measured by the workflow's clock, from scheduling the fence to hearing that the destination serves: an upper bound.
package workflows
