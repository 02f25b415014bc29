package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

// asking is a request as a worker of some version makes it.
func asking(protocol string) exchange {
	return exchange{Method: transferpb.Transfer_Revision_FullMethodName, Protocol: protocol}
}

func TestServer_AskedInAProtocolItDoesNotServe_SaysWhichWorkerIsTooOld(t *testing.T) {
	for name, c := range map[string]struct {
		asked string
		says  string
	}{
		"newer than it knows":          {"4", "the origin's serves transfer protocols 2 to 3 and is asked in 4; upgrade the origin shard's workers"},
		"older than it remembers":      {"1", "the origin's serves transfer protocols 2 to 3 and is asked in 1; upgrade the destination shard's workers"},
		"before workers told versions": {"", "the origin's serves transfer protocols 2 to 3 and is asked in 1; upgrade the destination shard's workers"},
	} {
		t.Run(name, func(t *testing.T) {
			source := newFakeSource(nil, 1)
			server := newServer(t, Config{}, source)
			server.protocols = activities.Protocols{Oldest: 2, Newest: 3}
			address, _ := serve(t, server)
			for _, method := range []string{transferpb.Transfer_Revision_FullMethodName, transferpb.Transfer_Read_FullMethodName, "/kcpmigrate.transfer.v2.Transfer/Read"} {
				asked := asking(c.asked)
				asked.Method = method
				refusal := callRaw(t, address, asked).status(t)

				require.Equal(t, codes.FailedPrecondition, refusal.Code())
				require.Equal(t, []string{"PROTOCOL"}, reasons(refusal.Details()))
				require.Contains(t, refusal.Message(), c.says)
			}
			require.Zero(t, source.calls.Load())
		})
	}
}

func TestServer_AskedInAnOlderProtocolThatItServes_Answers(t *testing.T) {
	eachRecording(t, func(t *testing.T, old oldWorker) {
		server := newServer(t, Config{}, recordedSource())
		server.protocols.Newest = 7
		address, _ := serve(t, server)
		old.requireSameAnswer(t, old.Exchanges[0], callRaw(t, address, old.Exchanges[0]))
	})
}

func TestServer_AskedForAMethodThatItDoesNotKnow_SaysThatItIsTooOld(t *testing.T) {
	address, _ := serve(t, newServer(t, Config{}, newFakeSource(nil, 1)))
	asked := asking("1")
	asked.Method += "OfTomorrow"
	refusal := callRaw(t, address, asked).status(t)
	require.Equal(t, []string{"PROTOCOL"}, reasons(refusal.Details()))
	require.Contains(t, refusal.Message(), "without "+asked.Method+"; upgrade the origin shard's workers")
}

func TestServer_AskedInNoVersionAtAll_RefusesTheRequest(t *testing.T) {
	address, _ := serve(t, newServer(t, Config{}, newFakeSource(nil, 1)))
	for _, nonsense := range []string{"one", "-1", "1.0"} {
		require.Equal(t, codes.InvalidArgument, callRaw(t, address, asking(nonsense)).status(t).Code())
	}
}

func TestClient_OfAServerThatLacksTheMethod_SaysWhichWorkerIsTooOld(t *testing.T) {
	requireEveryMethodFails(t, connectTo(t), func(err error) {
		require.ErrorIs(t, err, activities.ErrProtocol)
		require.ErrorContains(t, err, "upgrade the origin shard's workers")
	})
}

func TestClient_TellsItsProtocol(t *testing.T) {
	told := make(chan string, 1)
	remote := connectRaw(t, func(asked exchange) exchange {
		told <- asked.Protocol
		return exchange{}
	})
	requireTold := func() { require.Equal(t, "1", <-told, "what was recorded of this version") }
	_, _ = remote.Revision(t.Context(), guard) // the answer says nothing
	requireTold()
	_, _ = readAll(t.Context(), remote, readRequest())
	requireTold()
}
