/** One server-sent event, or only an id. */
export interface ServerSent {
  readonly id: string
  readonly event: string | null
  readonly data: Record<string, unknown> | null
}

/** Reads server-sent events as a browser does, until the stream ends or `signal` aborts. */
export async function* readEvents(
  response: Response,
  signal?: AbortSignal,
): AsyncGenerator<ServerSent> {
  if (!response.body) throw new Error('the answer has no body')
  let text = ''
  try {
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk
      const blocks = text.split('\n\n')
      text = blocks.pop() ?? ''
      for (const block of blocks) yield parse(block)
    }
  } catch (error) {
    if (!signal?.aborted) throw error
  }
}

function parse(block: string): ServerSent {
  const fields = new Map(
    block.split('\n').map((line) => {
      const colon = line.indexOf(': ')
      return [line.slice(0, colon), line.slice(colon + 2)]
    }),
  )
  const data = fields.get('data')
  return {
    id: fields.get('id') ?? '',
    event: fields.get('event') ?? null,
    data: data === undefined ? null : JSON.parse(data),
  }
}
