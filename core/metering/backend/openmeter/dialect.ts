import type { Customer, MeterQuery, MeterRow } from '../backend.ts'
import type { Meter } from '../catalog.ts'
import type { HttpRequest } from './http.ts'

/** A meter as described by the backend. */
export interface MeterRecord {
  readonly id: string
  readonly eventType: string
  readonly aggregation: string
  readonly valueProperty: string | null
  readonly groupBy: Readonly<Record<string, string>>
}

export interface FeatureRecord {
  readonly meter: string | null
}

export interface CustomerRecord {
  readonly id: string
  readonly subjects: readonly string[]
  /** The complete response, because an update replaces the whole customer. */
  readonly raw: unknown
}

export type Request = Pick<HttpRequest, 'method' | 'path' | 'query' | 'text'>

/**
 * Requests and response readers for one version of OpenMeter's API. Readers accept any response,
 * and return null for a wrong one.
 */
export interface Dialect {
  readonly eventsPath: string
  findMeter(key: string): Request
  readMeter(body: unknown, key: string): MeterRecord | null
  createMeter(meter: Meter): Request
  createdMeter(body: unknown): string | null
  findFeature(key: string, meter: { key: string; id: string }): Request
  readFeature(body: unknown, key: string): FeatureRecord | null
  createFeature(feature: { key: string; name: string }, meter: { key: string; id: string }): Request
  /** Returns true if the feature counts this meter. */
  isOf(feature: FeatureRecord, meter: { key: string; id: string }): boolean
  createCustomer(customer: Customer): Request
  findCustomer(key: string): Request
  readCustomer(body: unknown, key: string): CustomerRecord | null
  /** Adds the subject. A full replacement, so it repeats all members of the record. */
  attribute(customer: CustomerRecord, subject: string): Request
  queryMeter(meter: { key: string; id: string }, query: MeterQuery): Request
  readRows(body: unknown): MeterRow[] | null
}

// Response readers, which assume nothing about the other system.

export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    Object.hasOwn(value, name)
    ? new Map(Object.entries(value)).get(name)
    : undefined
}

export function readText(value: unknown, name: string): string | null {
  const text = member(value, name)
  return typeof text === 'string' ? text : null
}

export function readList(value: unknown, name: string): readonly unknown[] {
  const list = name === '' ? value : member(value, name)
  return Array.isArray(list) ? list : []
}

/** Returns the text members of an object. */
export function readTexts(value: unknown, name: string): Record<string, string> {
  const object = member(value, name)
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return {}
  return Object.fromEntries(
    Object.entries(object).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string',
    ),
  )
}

/** Reads a sum, which OpenMeter writes as a number or decimal text; null for anything else. */
export function readNumber(value: unknown, name: string): number | null {
  const raw = member(value, name)
  const number = typeof raw === 'string' && /^-?\d+(\.\d+)?$/.test(raw) ? Number(raw) : raw
  return typeof number === 'number' && Number.isFinite(number) ? number : null
}

/** Returns the named members; absent ones stay absent. */
export const pick = (value: unknown, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(
    names.flatMap((name) => {
      const raw = member(value, name)
      return raw === undefined || raw === null ? [] : [[name, raw]]
    }),
  )
