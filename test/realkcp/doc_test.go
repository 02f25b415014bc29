// Package realkcp moves tenants of a real kcp of two shards, every part of it a process of its own, and looks at what
// their clients see and at what is in both etcds. Without kcp's binaries its tests are skipped.
package realkcp
