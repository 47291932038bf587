import made from './examples.json' with { type: 'json' }

/** What the OpenAPI document shows of an operation: a body that is accepted, and what is answered by status. */
export interface Example {
  readonly body?: object
  readonly answers: Readonly<Record<string, object>>
}

/** By method and path, as `post /api/v1/apps/{clientId}/users`. The answers are a real core's, with other ids and times. */
export const examples: Readonly<Record<string, Example>> = made
