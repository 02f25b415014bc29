package main

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// fillerBytes make a ConfigMap of about 1 kB.
const fillerBytes = 850

// configMapContent is the key and value of one ConfigMap, as an API server stores it.
func configMapContent(logicalCluster string, number int) (key, value string) {
	name := fmt.Sprintf("filler-%07d", number)
	configMap := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(logicalCluster + name),
		},
		Data: map[string]string{"fill": strings.Repeat("x", fillerBytes)},
	}
	var encoded bytes.Buffer
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	if err := serializer.Encode(configMap, &encoded); err != nil {
		panic(err) // of a ConfigMap made here, into memory
	}
	return layout.FamilyPrefix(configMaps, logicalCluster) + metav1.NamespaceDefault + "/" + name, encoded.String()
}
