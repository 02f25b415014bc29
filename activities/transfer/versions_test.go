package transfer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/kcp-migrate/kcp-migrate/activities/transfer/transferpb"
)

func TestServer_AskedByARecordedOldWorker_AnswersAsItExpects(t *testing.T) {
	eachRecording(t, func(t *testing.T, old oldWorker) {
		for _, recorded := range old.Exchanges {
			source := recordedSource()
			source.err = stepNamed(t, recorded.Step).failure
			address, _ := serve(t, newServer(t, Config{}, source))

			answered := callRaw(t, address, recorded)

			old.requireSameAnswer(t, recorded, answered)
		}
	})
}

func TestClient_OfARecordedOldWorker_AsksWhatItUnderstandsAndReadsItsAnswers(t *testing.T) {
	eachRecording(t, func(t *testing.T, old oldWorker) {
		for _, recorded := range old.Exchanges {
			step := stepNamed(t, recorded.Step)
			requests := make(chan exchange, 1)
			remote := connectRaw(t, func(asked exchange) exchange {
				requests <- asked
				return recorded
			})

			got, err := step.ask(t.Context(), remote)

			old.requireSameRequest(t, recorded, <-requests)
			if step.failure != nil {
				require.ErrorIs(t, err, step.failure)
				continue
			}
			require.NoError(t, err, recorded.Step)
			want, err := step.ask(t.Context(), recordedSource())
			require.NoError(t, err)
			require.Equal(t, want, got, recorded.Step)
		}
	})
}

// A newer worker whose protocol is the same may say more, and an older one may ignore it.
func TestFieldsOfANewerWorker_AreIgnored(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "news")
	eachRecording(t, func(t *testing.T, old oldWorker) {
		for _, recorded := range old.Exchanges {
			step := stepNamed(t, recorded.Step)
			if step.failure != nil {
				continue
			}
			newer := recorded
			newer.Request = slices.Concat(recorded.Request, unknown)
			address, _ := serve(t, newServer(t, Config{}, recordedSource()))
			old.requireSameAnswer(t, recorded, callRaw(t, address, newer))

			for i, response := range recorded.Responses {
				newer.Responses[i] = slices.Concat(response, unknown)
			}
			got, err := step.ask(t.Context(), connectRaw(t, func(exchange) exchange { return newer }))
			require.NoError(t, err)
			want, err := step.ask(t.Context(), recordedSource())
			require.NoError(t, err)
			require.Equal(t, want, got, recorded.Step)
		}
	})
}

// Where a method has no recording, nobody notices that its messages changed their meaning.
func TestRecordings_TogetherHoldEveryMethodAndReason(t *testing.T) {
	missing := map[string]bool{}
	for _, method := range transferpb.Transfer_ServiceDesc.Methods {
		missing[method.MethodName] = true
	}
	for _, stream := range transferpb.Transfer_ServiceDesc.Streams {
		missing[stream.StreamName] = true
	}
	for _, step := range steps() {
		missing[step.name] = true
	}
	eachRecording(t, func(_ *testing.T, old oldWorker) {
		for _, recorded := range old.Exchanges {
			delete(missing, methodName(recorded.Method))
			delete(missing, recorded.Step)
		}
	})
	require.Empty(t, missing, "record them: go test ./activities/transfer -run TestRecord -record <name>")
}

// oldWorker reads messages as workers of its version do.
type oldWorker struct {
	recording
	service protoreflect.ServiceDescriptor
}

func eachRecording(t *testing.T, test func(*testing.T, oldWorker)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "recordings", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			encoded, err := os.ReadFile(file)
			require.NoError(t, err)
			var old oldWorker
			require.NoError(t, json.Unmarshal(encoded, &old.recording))
			described := &descriptorpb.FileDescriptorProto{}
			require.NoError(t, proto.Unmarshal(old.Schema, described))
			schema, err := protodesc.NewFile(described, nil)
			require.NoError(t, err)
			old.service = schema.Services().ByName("Transfer")
			test(t, old)
		})
	}
}

func stepNamed(t *testing.T, name string) step {
	t.Helper()
	all := steps()
	at := slices.IndexFunc(all, func(step step) bool { return step.name == name })
	require.GreaterOrEqual(t, at, 0, "no step %q", name)
	return all[at]
}

func methodName(path string) string { return path[strings.LastIndex(path, "/")+1:] }

func (o oldWorker) method(recorded exchange) protoreflect.MethodDescriptor {
	return o.service.Methods().ByName(protoreflect.Name(methodName(recorded.Method)))
}

func (o oldWorker) requireSameRequest(t *testing.T, recorded, asked exchange) {
	t.Helper()
	require.Equal(t, recorded.Method, asked.Method)
	kind := o.method(recorded).Input()
	requireSame(t, recorded.Step, read(t, kind, recorded.Request), read(t, kind, asked.Request))
}

func (o oldWorker) requireSameAnswer(t *testing.T, recorded, answered exchange) {
	t.Helper()
	kind := o.method(recorded).Output()
	requireSame(t, recorded.Step, read(t, kind, recorded.Responses...), read(t, kind, answered.Responses...))
	want, got := recorded.status(t), answered.status(t)
	require.Equal(t, want.Code(), got.Code(), got.Message())
	require.Equal(t, reasons(want.Details()), reasons(got.Details()))
}

// read gives what the messages of a stream say together, however it is cut; fields that the old worker does not know are lost on it.
func read(t *testing.T, kind protoreflect.MessageDescriptor, messages ...[]byte) proto.Message {
	t.Helper()
	whole := dynamicpb.NewMessage(kind)
	for _, message := range messages {
		require.NoError(t, proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}.Unmarshal(message, whole))
	}
	return whole
}

func requireSame(t *testing.T, step string, want, got proto.Message) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "%s: want %v, got %v", step, want, got)
}

func reasons(details []any) []string {
	var found []string
	for _, detail := range details {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			found = append(found, info.GetReason())
		}
	}
	return found
}
