/**
 * One message as delivered by a stream. `offset` is null for a stream without offsets (direct
 * mode).
 */
export interface StreamRecord {
  readonly source: string
  readonly partition: number
  readonly offset: bigint | null
  readonly bytes: Buffer
  /** When the stream received it, in milliseconds. Lag is measured from this time. */
  readonly producedAtMs: number
}
