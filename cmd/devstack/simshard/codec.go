package simshard

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// clusterAnnotation is on every object that is read: kcp's storage derives it from the key.
const clusterAnnotation = "kcp.io/cluster"

// object is any API object: built-in ones are typed while they are only read, all others unstructured.
type object interface {
	runtime.Object
	metav1.Object
}

var (
	builtInScheme = newBuiltInScheme()
	codecs        = serializer.NewCodecFactory(builtInScheme)
	protobufs     = protobuf.NewSerializer(builtInScheme, builtInScheme)
	jsons         = serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, builtInScheme, builtInScheme, serializerjson.SerializerOptions{})
)

func newBuiltInScheme() *runtime.Scheme {
	built := runtime.NewScheme()
	if err := scheme.AddToScheme(built); err != nil {
		panic(err) // only a clash of compiled-in types can cause it
	}
	install.Install(built)
	metav1.AddToGroupVersion(built, corev1.SchemeGroupVersion)
	return built
}

// decode reads a stored value of a family.
func decode(f family, value []byte) (object, error) {
	if !f.builtIn() {
		return decodeJSON(value)
	}
	decoded, kind, err := codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err == nil && f == crdFamily {
		decoded, err = viaInternal(decoded, apiextensionsv1.SchemeGroupVersion)
		*kind = kind.GroupKind().WithVersion(apiextensionsv1.SchemeGroupVersion.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("decode %s/%s: %w", f.group, f.resource, err)
	}
	typed, isObject := decoded.(object)
	if !isObject {
		return nil, fmt.Errorf("decode %s/%s: %T is no API object", f.group, f.resource, decoded)
	}
	typed.GetObjectKind().SetGroupVersionKind(*kind)
	return typed, nil
}

// viaInternal converts a CRD to another version; versions are convertible through the internal one only.
func viaInternal(from runtime.Object, to schema.GroupVersion) (runtime.Object, error) {
	builtInScheme.Default(from)
	internal, err := builtInScheme.ConvertToVersion(from, apiextensions.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return builtInScheme.ConvertToVersion(internal, to)
}

func decodeJSON(value []byte) (*unstructured.Unstructured, error) {
	decoded := &unstructured.Unstructured{}
	if err := decoded.UnmarshalJSON(value); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return decoded, nil
}

// decodeBody reads the object of a request, which client-go sends as JSON or as protobuf.
func decodeBody(body []byte) (*unstructured.Unstructured, error) {
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		return decodeJSON(body)
	}
	typed, err := decode(family{}, body)
	if err != nil {
		return nil, err
	}
	return toUnstructured(typed)
}

func toUnstructured(from object) (*unstructured.Unstructured, error) {
	if already, is := from.(*unstructured.Unstructured); is {
		return already, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", from, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// encode gives the value that kcp would store for an object of a family.
func encode(f family, from *unstructured.Unstructured) ([]byte, error) {
	stored := from.DeepCopy()
	stored.SetResourceVersion("")
	var out bytes.Buffer
	if !f.builtIn() {
		if err := unstructured.UnstructuredJSONScheme.Encode(stored, &out); err != nil {
			return nil, fmt.Errorf("encode %s/%s: %w", f.group, f.resource, err)
		}
		return out.Bytes(), nil
	}
	typed, err := toTyped(stored)
	if err != nil {
		return nil, err
	}
	encoder := runtime.Encoder(protobufs)
	if f == crdFamily { // kcp stores CRDs as JSON of v1beta1, as Kubernetes does
		encoder = jsons
		if typed, err = viaInternal(typed, apiextensionsv1beta1.SchemeGroupVersion); err != nil {
			return nil, fmt.Errorf("encode %s/%s: %w", f.group, f.resource, err)
		}
	}
	if err := encoder.Encode(typed, &out); err != nil {
		return nil, fmt.Errorf("encode %s/%s: %w", f.group, f.resource, err)
	}
	return out.Bytes(), nil
}

func toTyped(from *unstructured.Unstructured) (runtime.Object, error) {
	typed, err := builtInScheme.New(from.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", from.GetKind(), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, typed); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", from.GetKind(), from.GroupVersionKind().Version, from.GetKind(), err))
	}
	typed.GetObjectKind().SetGroupVersionKind(from.GroupVersionKind())
	return typed, nil
}
