/** What each reason means for an operator (docs/signer-events.md). */
const meanings: Readonly<Record<string, string>> = {
  too_large: 'The event is longer than 1 MiB; only its beginning was kept.',
  not_utf8: 'The bytes are no text.',
  not_json: 'The text is no JSON.',
  too_deep: 'The JSON nests too deep.',
  duplicate_member: 'A name occurs twice in an object.',
  not_an_object: 'The JSON is no object.',
  no_type: 'The event has no type.',
  no_id: 'The event has no id.',
  invalid_id: 'The id cannot be used.',
  invalid_data: 'The part with the ticket is missing or no object.',
  invalid_fee: 'The cost is no whole number of wei.',
  fee_out_of_range: 'The cost is above the limit.',
  invalid_time: 'The time of signing cannot be read.',
  time_out_of_range: 'The ticket was signed too long ago, or in the future.',
  invalid_session: 'The payment session is missing or unusable.',
  invalid_sequence: 'The number of the call cannot be read.',
  invalid_number: 'One of the figures cannot be read.',
  unattributed: 'The event names no user.',
  unknown_client: 'No app has the client id that the event names.',
  invalid_subject: 'The user’s id cannot be used.',
  same_id_other_bytes: 'Another event with the same id arrived before.',
  rejected_by_database: 'The database refused the ticket.',
}

export const explainReason = (reason: string): string => meanings[reason] ?? ''

/** Events that lack only a user can be assigned to one. */
export const isAttributable = (reason: string): boolean =>
  ['unattributed', 'unknown_client', 'invalid_subject'].includes(reason)
