package point

// Bug is what the bench's workers can be told to do wrong, to see that the bench catches it.
type Bug string

// A bug for each invariant of README.md, in their order.
const (
	NoBug             Bug = ""
	DeletesEarly      Bug = "deletes-early"
	LosesAnEntry      Bug = "loses-an-entry"
	TouchesANeighbour Bug = "touches-a-neighbour"
	RetakesTheClaim   Bug = "retakes-the-claim"
	ClaimsOnce        Bug = "claims-once"
	LeavesItBlind     Bug = "leaves-it-blind"
	TellsASecret      Bug = "tells-a-secret"
	ForgetsTheTime    Bug = "forgets-the-time"
	LeavesWatchesDeaf Bug = "leaves-watches-deaf"
	// DeletesUnseen is of two moves out of one shard, which the bench does not play.
	DeletesUnseen Bug = "deletes-unseen"
)
