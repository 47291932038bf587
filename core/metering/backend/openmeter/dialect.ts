import type { Customer, MeterQuery, MeterRow } from '../backend.ts'
import type { Meter } from '../catalog.ts'
import type { HttpRequest } from './http.ts'

/** A meter as the backend has it. */
export interface FoundMeter {
  readonly id: string
  readonly eventType: string
  readonly aggregation: string
  readonly valueProperty: string | null
  readonly groupBy: Readonly<Record<string, string>>
}

export interface FoundFeature {
  readonly meter: string | null
}

export interface FoundCustomer {
  readonly id: string
  readonly subjects: readonly string[]
  /** As it came: an update replaces all of it. */
  readonly raw: unknown
}

type Request = Pick<HttpRequest, 'method' | 'path' | 'query' | 'text'>

/** What one version of OpenMeter's API calls things. The readers take any answer and find nothing in a wrong one. */
export interface Dialect {
  readonly eventsPath: string
  findMeter(key: string): Request
  readMeter(body: unknown, key: string): FoundMeter | null
  createMeter(meter: Meter): Request
  createdMeter(body: unknown): string | null
  findFeature(key: string, meter: { key: string; id: string }): Request
  readFeature(body: unknown, key: string): FoundFeature | null
  createFeature(feature: { key: string; name: string }, meter: { key: string; id: string }): Request
  /** Does the found feature count this meter? */
  isOf(feature: FoundFeature, meter: { key: string; id: string }): boolean
  createCustomer(customer: Customer): Request
  findCustomer(key: string): Request
  readCustomer(body: unknown, key: string): FoundCustomer | null
  /** A full replacement: everything that was there, and the subject. */
  attribute(found: FoundCustomer, subject: string): Request
  queryMeter(meter: { key: string; id: string }, query: MeterQuery): Request
  readRows(body: unknown): MeterRow[] | null
}
