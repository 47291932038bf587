type Headers = Readonly<Record<string, string>>

/** An answer other than 200: thrown by any step of a payment, rendered once by the server. */
export type Refusal = Error & Readonly<{ status: number; headers: Headers }>

export function refusal(status: number, message: string, headers: Headers = {}): Refusal {
  return Object.assign(new Error(message), { status, headers })
}

export const isRefusal = (error: unknown): error is Refusal =>
  error instanceof Error && 'status' in error && 'headers' in error

/** Runs a parser and turns its errors into a refusal with the parser's message. */
export function refuseOnThrow<T>(status: number, run: () => T): T {
  try {
    return run()
  } catch (error) {
    if (isRefusal(error)) throw error
    throw refusal(status, error instanceof Error ? error.message : 'the request cannot be read')
  }
}
