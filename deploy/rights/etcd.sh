#!/bin/sh
# Makes in a shard's etcd, where authentication is on, the role that the shard's workers need and a user who has it.
# Run it with etcdctl's ETCDCTL_ENDPOINTS and the credentials of root. The argument is the shard's --etcd-prefix. The
# user has no password: etcd knows it by its client certificate, whose common name is kcp-migrate. For a password
# (--etcd-username, --etcd-password-file) leave out --no-password.
set -eu
prefix="${1:-/registry}"

etcdctl role add kcp-migrate
# One logical cluster's keys are in between those of all others, so etcd cannot tell them apart.
etcdctl role grant-permission kcp-migrate --prefix readwrite "$prefix/"
# Claims, locks, the key that raises the revision, and the one that is probed.
etcdctl role grant-permission kcp-migrate --prefix readwrite /kcp-migrate/
etcdctl user add kcp-migrate --no-password
etcdctl user grant-role kcp-migrate kcp-migrate
