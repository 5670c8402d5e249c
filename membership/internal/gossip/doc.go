// Package gossip reads and writes what members send each other by gossip: the messages of
// memberlist, the metadata of an instance, and the fields of this project's own messages.
//
// Promise: what is read takes no more memory than the bytes that have arrived, and what is
// written is what earlier releases read. Nothing here decides whether a message is true.
//
//	bytes ──► DecodeMetadata, Decode, CopyValue, FieldReader ──► Metadata, Alive, Doubt, State
//	bytes ◄── Metadata.Encode, Encode, AppendText ◄───────────┘
//
// Rules:
//
//   - memberlist's messages are maps by field name. Metadata is a list: the order of its fields is
//     the format, so a field is only ever appended.
//   - The codec decodes from bytes, never from a stream: see Decode and CopyValue.
package gossip
